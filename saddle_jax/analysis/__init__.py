"""Analysis of trained models: the spectrum of the Hessian, and loss landscapes."""

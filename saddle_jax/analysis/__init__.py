"""What is measured of trained models: curvature, landscapes, the theorem."""

"""What a step is made of: graphs, the network, gradients, gossip, rules and methods."""

"""The claims of the FedFW paper [dadras2024federated]."""

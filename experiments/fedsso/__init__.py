"""The claims of the FedSSO paper, each an executable check."""

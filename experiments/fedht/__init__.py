"""The claims of the Fed-HT paper [tong2022federated], and what goes beyond it."""

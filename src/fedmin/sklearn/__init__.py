"""A classifier and a regressor with scikit-learn's manners, trained over clients.

May import: everything but reports, runs and cli.
"""

from fedmin.sklearn.classifier import FederatedClassifier
from fedmin.sklearn.regressor import FederatedRegressor

__all__ = ["FederatedClassifier", "FederatedRegressor"]

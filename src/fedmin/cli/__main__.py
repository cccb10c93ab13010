"""python -m fedmin.cli"""

from fedmin.cli.app import app

if __name__ == "__main__":
    app()

"""python -m fedmin.cli"""

from fedmin.cli.app import main

if __name__ == "__main__":
    main()

"""`python -m fairlead` is `fairlead`."""

from fairlead.cli.main import main

if __name__ == "__main__":
    main()

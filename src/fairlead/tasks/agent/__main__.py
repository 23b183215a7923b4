"""`python -m fairlead.tasks.agent`: the program of the image fairlead/agent."""

import sys

from fairlead.tasks.agent.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

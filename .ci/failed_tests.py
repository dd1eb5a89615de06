"""Print the tests that failed in a JUnit file; exit code 1 if there are none, or too many."""

import argparse
import sys
import xml.etree.ElementTree as ElementTree


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", help="what pytest --junitxml wrote")
    parser.add_argument("--at-most", type=int, required=True, metavar="N")
    options = parser.parse_args()
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in ElementTree.parse(options.results).iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    print(*failed, sep="\n")
    return 0 if 0 < len(failed) <= options.at_most else 1


if __name__ == "__main__":
    sys.exit(main())

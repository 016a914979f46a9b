#!/usr/bin/env python3
"""How many lines of an operator a person writes: without tests, empty lines, comments and generated files.

    examples/lines.py                     the examples here, each folder by itself
    examples/lines.py FOLDER FILE ...     Go files of a checkout, such as those of the originals; FILE may have a `*`

A line counts the same in both languages. Both formatters break lines: gofmt after what its author broke, rustfmt at
120 columns.
"""

import pathlib
import sys

EXAMPLES = ("sidecarset", "database", "autorebooter")
# Tests of the house stand at the end of a file, or in a file of their own.
TESTS = "#[cfg(test)]"
LEFT_OUT = ("zz_generated", "_test.go", "_tests.rs", "/testutil/")


def lines(path):
    text, inside, count = path.read_text().split(TESTS)[0], False, 0
    for line in map(str.strip, text.splitlines()):
        begins = inside or line.startswith("/*")
        inside = begins and "*/" not in line
        if line and not begins and not line.startswith("//"):
            count += 1
    return count


def total(paths):
    counted = [path for path in paths if path.is_file() and not any(word in str(path) for word in LEFT_OUT)]
    return sum(map(lines, counted)), len(counted)


def main(folder=None, *patterns):
    if folder:
        paths = sorted({path for pattern in patterns for path in pathlib.Path(folder).glob(pattern)})
        print("%d lines in %d files" % total(paths))
        return
    here = pathlib.Path(__file__).parent
    for name in EXAMPLES:
        folders = {"types": here / name / "api/src", "operator": here / name / "src"}
        counts = {what: total(path.rglob("*.rs"))[0] for what, path in folders.items()}
        print(f"{name}: {sum(counts.values())} lines {counts}")


if __name__ == "__main__":
    main(*sys.argv[1:])

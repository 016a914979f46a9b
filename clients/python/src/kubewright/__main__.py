"""`python -m kubewright`: the program, also where its folder is not on the PATH."""

import os
import sys

from kubewright import ClusterError
from kubewright._process import find_program

try:
    program = find_program(None)
except ClusterError as why:
    sys.exit(str(why))
os.execv(program, [program, *sys.argv[1:]])

# SPDX-License-Identifier: MIT
"""The command line, one module a command: arguments in, exit code out, no logic of its own.

A command's module imports only what its arguments need; numpy, CUDA and the
reports are imported when the command runs, so that --help stays light.
"""

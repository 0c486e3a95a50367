#!/bin/bash
# SPDX-License-Identifier: MIT
# Time direct resource-manager allocation, plain and compressible, contiguous and not, over the
# sizes that model:h200 is fitted and checked on: tools/rm-rows.sh NAME [PYTHON]
set -eu
name=${1:?usage: $0 NAME [PYTHON]}
exec "${2:-python3}" -m vmmprof sweep --driver rm --sizes 2M,32M,64M,128M,256M,512M,1G \
    --placement compressible --placement noncontiguous --placement compressible+noncontiguous \
    --repeats 30 --output "$name"

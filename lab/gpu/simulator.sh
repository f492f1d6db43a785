#!/bin/sh
# A simulated Intel GPU for OpenVINO's GPU plugin, on the CPU: it shows compilation, shapes, states
# and results; not speed, nor kernels that need matrix engines.
#
# usage: lab/gpu/simulator.sh FOLDER, with the Python of OpenVINO first on the path; then
# . FOLDER/env.sh and run anything with --device GPU. Needs gcc, and the headers of OpenCL (Debian:
# opencl-headers).
set -e
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/icd"
folder=$(cd "$1" && pwd)
# In a folder of their own: their libtbb is not for other programs.
python -m pip install -q --ignore-installed --prefix "$folder/runtime" \
    intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0
gcc -O1 -shared -fPIC -Wall -Wextra -o "$folder/libgpu_layer.so" "$here/gpu_layer.c"
echo "$folder/runtime/lib/libintelocl.so" > "$folder/icd/intel.icd"
# The newer libtbb goes first: that of OpenVINO lacks symbols that the OpenCL runtime needs.
cat > "$folder/env.sh" << END
export OV_SPECDEC_GPU=$folder
export OCL_ICD_VENDORS=$folder/icd OPENCL_LAYERS=$folder/libgpu_layer.so
export LD_LIBRARY_PATH=$folder/runtime/lib LD_PRELOAD=$folder/runtime/lib/libtbb.so.12
END

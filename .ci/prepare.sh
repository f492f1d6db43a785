# Sourced by `run` and `full`: what tests need of the system, and a folder for virtual environments.
# shellcheck shell=bash
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Installs Debian's packages: as root in a container, with sudo elsewhere.
install_packages() {
    as_root=$([ "$(id -u)" = 0 ] || echo sudo)
    { $as_root apt-get update -q; $as_root apt-get install -qy --no-install-recommends "$@"; } > /dev/null
}

# Pages are tested in a real browser, and GPUs on a simulated one.
command -v chromium > /dev/null || install_packages chromium
[ -f /usr/include/CL/cl_layer.h ] || install_packages gcc libc6-dev opencl-headers

folder=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null || true; rm -rf "$folder"' EXIT

# To compile all modules of all packages takes pip a minute; a tenth of them is ever imported. That
# tenth is compiled once: each of some hundred processes would take seconds for it.
export PIP_NO_COMPILE=1
unset PYTHONDONTWRITEBYTECODE

# A browser, the page's server and its models want all cores, as Ray and a simulated GPU do, and
# terminals are made by forking, which wants a young process: these parts have their own processes.
terminal=(tests/terminal)
pages=(tests/demo)
cluster=(tests/cluster/test_replicas.py)
gpu=(tests/gpu)
# shellcheck disable=SC2034
alone=("${terminal[@]}" "${pages[@]}" "${cluster[@]}" "${gpu[@]}")

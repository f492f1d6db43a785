"""A method of any framework in a process of its own, as `ov_specdec.bench.worker` is one."""

from ov_specdec.bench.worker import main
from tests.benchmarks.frameworks.methods import ALL

if __name__ == "__main__":
    main(ALL.find)

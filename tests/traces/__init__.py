"""Step traces of scripted runs: what the decoding core does, pass by pass, kept to compare with.

A run (`runs/`) says which models there are and what is asked of them. `compiled` are the models, in
place of those that OpenVINO compiles; `adapter` puts the core between the two; `recorder` writes
down what came of each step, and `golden` compares it with what is kept in `golden/`.

    python -m tests.traces              # plays all runs, and shows where one differs first
    python -m tests.traces --write      # the same, and keeps the new records
"""

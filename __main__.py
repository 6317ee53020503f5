from stacks.program import run

run()

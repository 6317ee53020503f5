from slipway.infra.program import run

run()

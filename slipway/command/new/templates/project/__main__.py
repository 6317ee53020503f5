from slipway import run

run()

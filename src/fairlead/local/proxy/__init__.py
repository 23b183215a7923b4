"""Services on loopback: cluster addresses and node ports that lead to the pods behind them."""

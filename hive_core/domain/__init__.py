"""Words of the product as values that cannot exist invalid; standard library only."""

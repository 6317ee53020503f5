"""Policies about resources that only AWS has, whoever declared them."""

"""Policies about resources that only Google Cloud has, whoever declared them."""

"""What a reviewer needs to know of a stack, and what each cloud has to say about its resources.

Everything here is plain data: a declared stack without the SDKs that declared it. The engines in ``offline`` fill
a `stack.Stack` from an evaluation, or from Pulumi's own when they are run as a policy pack; the clouds answer
through a `contract.Review`. Importing any of it, a cloud's review included, never imports an SDK.
"""

"""What stands in for values that every cloud computes, whichever it is."""

import base64

_NOT_A_CERTIFICATE = base64.b64encode(b"Emulated: no certificate authority signed this.").decode()
CA_CERTIFICATE = base64.b64encode(
    f"-----BEGIN CERTIFICATE-----\n{_NOT_A_CERTIFICATE}\n-----END CERTIFICATE-----\n".encode()
).decode()
"""A cluster's: base64 of PEM, as GKE and EKS give it; what is in the PEM is no certificate."""

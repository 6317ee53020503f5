"""A page with the digits that their nearest neighbours read wrong, each beside the neighbours that misled it."""

import argparse
import json
import signal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fit import split
from sklearn.neighbors import KNeighborsClassifier

SIDE, DARKEST = 8, 16
"""Pixels of a side of a digit, and the largest value of one (scikit-learn's `load_digits`)."""

HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}


def main() -> None:
    """Serve the page until told to stop; it is made once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--fit", type=Path, required=True, help="the best result of the step `fit`")
    options = parser.parse_args()
    metrics = json.loads((options.fit / "metrics.json").read_text(encoding="utf-8"))
    answer = page(metrics["neighbours"], metrics["accuracy"]).encode()

    class Handler(BaseHTTPRequestHandler):
        # Seconds: who says nothing holds a thread no longer.
        timeout = 10

        def do_GET(self) -> None:
            """Answer at `/`, and at `/healthz` for probes."""
            if self.path not in {"/", "/healthz"}:
                self.send_error(404)
                return
            body = answer if self.path == "/" else b"ok"
            self.send_response(200)
            for name, value in {**HEADERS, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    print(f"The best asks {metrics['neighbours']} neighbours: {metrics['accuracy']:.2%} read right", flush=True)

    # The first process of a container ends at no signal that it does not handle.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ThreadingHTTPServer((options.host, options.port), Handler) as server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped", flush=True)


def page(neighbours: int, accuracy: float) -> str:
    """The page, of the digits that ``neighbours`` read; ``accuracy`` is what the step measured."""
    known, unknown, of_known, truth = split()
    model = KNeighborsClassifier(n_neighbors=neighbours).fit(known, of_known)
    predictions = model.predict(unknown)
    wrong = [index for index in range(len(unknown)) if predictions[index] != truth[index]]
    nearest = model.kneighbors(unknown[wrong], return_distance=False) if wrong else []
    rows = "".join(
        f"<tr><td>{draw(unknown[index])}</td><td>{truth[index]}</td><td>{predictions[index]}</td>"
        f"<td>{''.join(draw(known[other]) for other in beside)}</td></tr>"
        for index, beside in zip(wrong, nearest, strict=True)
    )
    summary = f"{accuracy:.2%} of {len(unknown)} digits were read right, {len(wrong)} were not"
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Digits and their neighbours</title>"
        "<meta name=viewport content='width=device-width'><style>body{font:1rem sans-serif;margin:2rem}"
        "td,th{padding:.3rem 1rem;text-align:left}svg{width:3rem;margin-right:.3rem}</style>"
        f"<h1>Digits and their neighbours</h1><p>{summary}.</p><table>"
        f"<tr><th>digit<th>is<th>read as<th>nearest</tr>{rows}</table></html>"
    )


def draw(digit: Any) -> str:
    """A digit as a picture in SVG."""
    squares = "".join(
        f"<rect x={index % SIDE} y={index // SIDE} width=1 height=1 fill-opacity={value / DARKEST:.2f} />"
        for index, value in enumerate(digit)
        if value
    )
    return f"<svg viewBox='0 0 {SIDE} {SIDE}' role=img aria-label=digit>{squares}</svg>"


if __name__ == "__main__":
    main()

"""The engine of ClickHouse (chDB) behind the part of its HTTP interface that the official client speaks.

    python engine.py --port 0 --password secret

It prints one line of JSON with its port. One statement runs at a time. Only for tests, on the loopback address.
"""

import argparse
import base64
import email.parser
import email.policy
import http.server
import json
import os
import re
import sys
import tempfile
import threading
import urllib.parse

from chdb import session

FAULT = re.compile(r"Code: (\d+)")
INSERT = re.compile(r"^INSERT INTO (?P<table>\w+) \((?P<columns>[^)]*)\) FORMAT Parquet\s*$")
# Of the interface itself, and not settings.
KNOWN = {"query", "query_id", "database", "session_id", "default_format", "role"}
# What the client asks the server to do with its answer.
OF_ANSWERS = {"enable_http_compression", "send_progress_in_http_headers", "http_headers_progress_interval_ms", "wait_end_of_query"}


class Engine:
    def __init__(self, directory, database):
        self.session = session.Session(directory)
        self.database = database
        self.turn = threading.Lock()
        self.given = {}
        self.run(f"CREATE DATABASE IF NOT EXISTS {database}")
        self.run(f"USE {database}")

    def run(self, sql, params=None):
        return self.session.query(sql, "JSONEachRow", params=params or None).bytes()

    def settle(self, settings):
        """Settings are of one statement."""
        for name in [name for name in self.given if name not in settings]:
            self.run(f"SET {name} = DEFAULT")
            del self.given[name]
        for name, value in settings.items():
            if self.given.get(name) == value:
                continue
            if not re.fullmatch(r"\w+", name):
                raise ValueError(f"Code: 115. DB::Exception: setting {name!r}")
            text = value.replace("\\", "\\\\").replace("'", "\\'")
            self.run(f"SET {name} = '{text}'")
            self.given[name] = value

    def ask(self, sql, params, settings, body):
        with self.turn:
            self.settle(settings)
            insert = INSERT.match(sql.strip())
            if insert is None:
                return self.run(sql, params)
            with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
                file.write(body)
                file.flush()
                table, columns = insert["table"], insert["columns"]
                return self.run(f"INSERT INTO {table} ({columns}) FROM INFILE '{file.name}' FORMAT Parquet")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine = None
    login = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        if urllib.parse.urlsplit(self.path).path == "/ping":
            return self.answer(200, b"Ok.\n")
        return self.do_POST()

    def do_POST(self):
        body = self.body()
        if self.headers.get("authorization") != self.login:
            return self.fault(403, "Code: 516. DB::Exception: default: Authentication failed. (AUTHENTICATION_FAILED)")
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query, keep_blank_values=True))
        if self.headers.get("content-type", "").startswith("multipart/form-data"):
            asked.update(self.parts(body))
            body = b""
        sql = asked.get("query")
        if sql is None:
            sql, body = body.decode(), b""
        if asked.get("database", self.engine.database) != self.engine.database:
            return self.fault(404, "Code: 81. DB::Exception: Database does not exist. (UNKNOWN_DATABASE)")
        params = {name[6:]: value for name, value in asked.items() if name.startswith("param_")}
        settings = {
            name: value
            for name, value in asked.items()
            if not name.startswith("param_") and name not in KNOWN and name not in OF_ANSWERS
        }
        try:
            return self.answer(200, self.engine.ask(sql, params, settings, body))
        except Exception as error:  # the engine's own, of any type
            return self.fault(500, str(error))

    def body(self):
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        chunks = []
        while True:
            size = int(self.rfile.readline().split(b";")[0], 16)
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
            if size == 0:
                return b"".join(chunks)

    def parts(self, body):
        head = f"content-type: {self.headers['content-type']}\r\n\r\n".encode()
        whole = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
        return {
            part.get_param("name", header="content-disposition"): part.get_payload(decode=True).decode()
            for part in whole.iter_parts()
        }

    def fault(self, status, text):
        found = FAULT.search(text)
        return self.answer(status, text.encode(), {"x-clickhouse-exception-code": found[1] if found else "1002"})

    def answer(self, status, body, more=None):
        self.send_response(status)
        self.send_header("content-type", "application/x-ndjson" if status == 200 else "text/plain")
        self.send_header("content-length", str(len(body)))
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--user", default="sluice")
    parser.add_argument("--password", default="secret")
    parser.add_argument("--database", default="sluice")
    parser.add_argument("--directory", default=None)
    given = parser.parse_args()
    directory = given.directory or tempfile.mkdtemp(prefix="sluice-chdb-")
    Handler.engine = Engine(directory, given.database)
    Handler.login = "Basic " + base64.b64encode(f"{given.user}:{given.password}".encode()).decode()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", given.port), Handler)
    # It ends with the process that started it.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

"""A Prometheus or VictoriaMetrics that a benchmark asks, and what it costs. Needs only Python's own library."""
import glob, json, signal, socket, subprocess, time
import urllib.error, urllib.parse, urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cpu_seconds(pid):
    threads = glob.glob(f"/proc/{pid}/task/*/schedstat")
    return sum(int(open(thread).read().split()[0]) for thread in threads) * 1e-9


def most_megabytes(pid):
    return next(int(l.split()[1]) for l in open(f"/proc/{pid}/status") if l.startswith("VmHWM")) / 1024


class Engine:
    """A Prometheus or VictoriaMetrics that is ready; ended at the end of the block."""

    def __init__(self, name, command, port):
        self.name, self.command, self.url = name, command, f"http://127.0.0.1:{port}"

    def __enter__(self):
        self.child = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + 120
        while True:
            try:
                self.ask("1")
                return self
            except OSError:
                assert self.child.poll() is None and time.monotonic() < limit, f"no answer: {self.command}"
                time.sleep(0.2)

    def __exit__(self, *_):
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def post(self, path, body):
        with urllib.request.urlopen(urllib.request.Request(self.url + path, body), timeout=240) as answer:
            return answer.read()

    def data(self, path, **arguments):
        """What the server answers below "data"; ValueError with its own words."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(arguments)}", timeout=240) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{self.name}: {error.read()[:300]}") from error

    def ask(self, query, at=None):
        """The results of an instant query, at the last moment if none is named."""
        return self.data("/api/v1/query", query=query, **({"time": at} if at else {}))["result"]


def prometheus_over(series, folder):
    """Prometheus over a file of samples in OpenMetrics format, which promtool makes blocks of in the folder."""
    data, config, port = f"{folder}/prometheus", f"{folder}/prometheus.yml", free_port()
    subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", series, data],
                   check=True, stdout=subprocess.DEVNULL)
    open(config, "w").write("global: {}\n")
    return Engine("Prometheus", [
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}", "--query.timeout=4m",
        "--query.max-samples=500000000", f"--web.listen-address=127.0.0.1:{port}"], port)

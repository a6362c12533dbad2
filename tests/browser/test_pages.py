"""The pages at /ui and /docs in a real Chromium, against a running thumbd. scripts/browser.sh starts all of it.

SERVER_URL, SERVICE_KEY, ADMIN_TOKEN: the server. DEMO_URL, DEMO_LOG: scripts/demo.sh. THUMBD,
CONFIG, REDIS_SOCKET, SERVER_PID: for what is done past the pages. DRIVER_URL, CHROMIUM: the browser. UPDATE_SCREENSHOTS=1 writes docs/images anew.
"""

import json
import os
import signal
import socket
import subprocess
import unittest
import urllib.request

from webdriver import ENTER, TAB, Browser

URL = os.environ["SERVER_URL"]
SERVICE_KEY = os.environ["SERVICE_KEY"]
ADMIN_TOKEN = os.environ["ADMIN_TOKEN"]
UPDATE = os.environ.get("UPDATE_SCREENSHOTS") == "1"
IMAGES = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "images")


def call(method, path, key, body=None, user=None):
    """A call of the server, past the page."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data=data, method=method)
    request.add_header("Authorization", f"Bearer {key}")
    request.add_header("Content-Type", "application/json")
    if user:
        request.add_header("X-User-Id", user)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def redis(*words):
    """A command, past thumbd."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["REDIS_SOCKET"])
        parts = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        connection.sendall(f"*{len(words)}\r\n{parts}".encode())
        answer = connection.recv(1000)
        assert answer.startswith(b":1"), answer


def like(*pairs):
    operations = [{"op": "like", "user": user, "kind": "blog", "id": target} for user, target in pairs]
    results = call("POST", "/v1/batch", SERVICE_KEY, {"operations": operations})["results"]
    assert all(result["status"] == 200 for result in results), results


class Page(unittest.TestCase):
    """A browser of its own for each test; what the console complains of fails it."""

    # What the browser itself says of an answer that the test asks for.
    expected = ()
    width = 1280

    def setUp(self):
        self.browser = Browser(os.environ["DRIVER_URL"], os.environ["CHROMIUM"], self.width)
        self.addCleanup(self.browser.close)

    def tearDown(self):
        complaints = self.browser.complaints()
        complaints = [one["message"] for one in complaints if one["level"] in ("SEVERE", "WARNING")]
        odd = [text for text in complaints if not any(part in text for part in self.expected)]
        self.assertEqual(odd, [])

    def open(self):
        self.browser.open(URL + "/ui")
        self.browser.until("the form", lambda: self.browser.visible("#token"))

    def log_in(self):
        self.open()
        self.browser.type("#token", ADMIN_TOKEN)
        self.browser.click("#login button")
        self.browser.until("the board", lambda: self.browser.visible("#verdict"))

    def shows(self, selector, *parts):
        """Waits until an element shows all parts, and gives its text."""

        def there():
            text = self.browser.text(selector)
            return text if text and all(part in text for part in parts) else None

        return self.browser.until(f"{selector} shows {parts}", there)

    def picture(self, name, whole=False):
        if UPDATE:
            self.browser.run("scrollTo(0, 0)")
            self.browser.screenshot(os.path.join(IMAGES, name), whole)


class LogIn(Page):
    # Chromium notes each 401 and 403 by itself.
    expected = ("status of 401", "status of 403")

    def test_a_wrong_token_is_refused_and_the_right_one_opens_the_board(self):
        browser = self.browser
        self.open()
        self.assertFalse(browser.visible("#board"))
        self.assertEqual(browser.text("#refused"), "")
        for wrong, says in [("wrong", "This token is wrong."), (SERVICE_KEY, "it must be the admin token")]:
            browser.type("#token", wrong)
            browser.click("#login button")
            self.shows("#refused", says)
            focused = browser.run("return document.activeElement.id")
            self.assertEqual(focused, "token")
            self.assertFalse(browser.visible("#board"))
        browser.type("#token", ADMIN_TOKEN)
        browser.click("#login button")
        self.shows("#verdict", "All is well.")
        self.assertEqual(browser.text("#link"), "Live")
        # The token stands in no storage, no cookie and no address.
        left = browser.run("return [document.cookie, localStorage.length, sessionStorage.length, location.href]")
        self.assertEqual(left, ["", 0, 0, URL + "/ui"])
        browser.click("#leave")
        browser.until("the form again", lambda: browser.visible("#token"))
        self.assertFalse(browser.visible("#board"))

    def test_all_by_keyboard(self):
        browser = self.browser
        self.open()
        # The form has the focus already.
        browser.press(ADMIN_TOKEN + ENTER)
        self.shows("#verdict", "All is well.")
        seen = []
        for _ in range(60):
            browser.press(TAB)
            focused = browser.run(
                """
                const it = document.activeElement, style = getComputedStyle(it);
                return [it.id, style.outlineStyle, it.matches(":focus-visible")]
                """
            )
            if focused[0]:
                seen.append(focused[0])
                self.assertEqual(focused[1:], ["solid", True], focused)
            if focused[0] == "flush":
                break
        self.assertIn("slices", seen)
        self.assertEqual(seen[-1], "flush")
        browser.press(ENTER)
        self.shows("#flush-result", "landed")
        # Whoever pressed it is still there.
        self.assertEqual(browser.run("return document.activeElement.id"), "flush")
        unlabelled = browser.run(
            """
            return [...document.querySelectorAll("input, button, progress")]
                .filter((it) => it.checkVisibility() && !it.labels?.length && !it.textContent.trim() && !it.ariaLabel)
                .map((it) => it.outerHTML)
            """
        )
        self.assertEqual(unlabelled, [])


class Board(Page):
    expected = ("status of 401",)

    def test_what_is_shown_is_what_the_api_says(self):
        browser = self.browser
        like(*[(f"shown{n}", "shown") for n in range(7)], ("shown0", "other"))
        self.log_in()
        self.shows("#verdict", "All is well.")
        self.shows("#health", "takes likes", "answers", "empty")
        self.shows("#instances", "(this one)", "just now")
        self.shows("#slices", "entries")
        drawn = browser.run(
            "return [...document.querySelectorAll('.chart canvas')].map((it) => it.width > 100 && it.height > 100)"
        )
        self.assertEqual(drawn, [True, True])

        browser.click("#flush")
        self.shows("#flush-result", "landed", "0 to quarantine")
        self.shows("#slices", "flushed", "in ")
        slices = call("GET", "/admin/v1/slices", ADMIN_TOKEN)
        last = slices["last_flush"]["report"]
        self.shows("#flushes", str(last["entries"]) if last["slices"] == 1 else "")
        self.shows("#most", "blog/shown")
        self.shows("#rising", "blog/shown", "+7")

        browser.click("#compensate")
        self.shows("#compensate-result", "0 slices adopted; 0 differences")
        self.shows("#compensations", "done")
        browser.click("#verify")
        self.shows("#verify-result", "0 differences in")

        # A click on a target of a list looks at it.
        browser.click("#rising button")
        found = self.shows("#target-found", "Newest likers", "shown6")
        count = call("GET", "/v1/likes/blog/shown", SERVICE_KEY)["count"]
        self.assertIn(f"Count\n{count}", found)
        like(("shown9", "shown"))
        browser.type("#kind", "blog")
        browser.type("#id", "shown")
        browser.click("#look-target button")
        found = self.shows("#target-found", "since the slice of")
        self.assertIn(f"Count\n{count + 1}\nIn MySQL\n{count}\nUnflushed\n+1", found)
        browser.type("#user", "shown0")
        browser.click("#look-user button")
        self.shows("#user-found", "yes, with all likes", "blog/shown", "blog/other")
        browser.type("#kind", "Blog")
        browser.click("#look-target button")
        self.shows("#target-found", "kind")

    # The last expectation is an answer with 400.
    def tearDown(self):
        self.expected = (*self.expected, "status of 400")
        super().tearDown()


class Trouble(Page):
    expected = ("status of 401",)

    def test_what_is_wrong_is_said_with_what_to_do(self):
        browser = self.browser
        like(("trouble", "trouble"))
        slice_id = call("GET", "/admin/v1/slices", ADMIN_TOKEN)["slices"][0]["id"]
        redis("HSET", f"thumbd:v1:{{0}}:slice:{slice_id}", "nonsense", "5")
        self.log_in()
        self.shows("#slices", "open", "2 entries")
        browser.click("#flush")
        self.shows("#flush-result", "1 to quarantine")
        self.shows("#slices", "1 in quarantine")
        self.shows("#verdict", "1 operation stands in quarantine.", "thumbd quarantine list", "ThumbdQuarantine")
        self.assertEqual(browser.run("return document.querySelector('#verdict').className"), "unwell")
        # Redis forgets a like: verify says so.
        redis("HDEL", "thumbd:v1:{0}:user:trouble", "blog:trouble")
        browser.click("#verify")
        self.shows("#verify-result", "1 difference in", "user in Redis")
        self.shows("#verdict", "things are wrong", "ThumbdCountsDiffer")
        redis("DEL", "thumbd:v1:{0}:user:trouble")
        browser.click("#verify")
        self.shows("#verify-result", "0 differences in")
        subprocess.run(
            [os.environ["THUMBD"], "quarantine", "drop", "--all", "--config", os.environ["CONFIG"]],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self.shows("#verdict", "All is well.")

    def test_a_lost_connection_is_said_and_made_again(self):
        browser = self.browser
        self.log_in()
        self.shows("#link", "Live")
        server = int(os.environ["SERVER_PID"])
        os.kill(server, signal.SIGSTOP)
        try:
            self.shows("#link", "Connection lost (no news)", "Trying again")
        finally:
            os.kill(server, signal.SIGCONT)
        self.shows("#link", "Live")
        self.assertTrue(browser.visible("#board"))


class Phone(Page):
    expected = ("status of 401",)
    width = 360

    def test_it_is_readable_on_a_phone_and_in_the_dark(self):
        browser = self.browser
        like(*[(f"phone{n}", f"a-target-with-a-long-name-{n}") for n in range(5)])
        self.log_in()
        self.shows("#verdict", "All is well.")
        self.shows("#slices", "entries")
        browser.click("#flush")
        self.shows("#flush-result", "landed")
        wide = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        self.assertLessEqual(wide[0], wide[1], "nothing sticks out")
        light = browser.run("return getComputedStyle(document.body).backgroundColor")
        self.assertEqual(light, "rgb(255, 255, 255)")
        self.assert_contrast()
        browser.emulate(360, 800, dark=True)
        dark = browser.run("return getComputedStyle(document.body).backgroundColor")
        self.assertEqual(dark, "rgb(22, 24, 28)")
        self.assert_contrast()

    def assert_contrast(self):
        """WCAG 2.2, AA: 4.5 to 1 for all texts that are shown."""
        weak = self.browser.run(
            """
            const parts = (text) => text.match(/[\\d.]+/g).map(Number);
            const light = ([r, g, b]) => [r, g, b].map((it) => it / 255)
                .map((it) => (it <= .04045 ? it / 12.92 : ((it + .055) / 1.055) ** 2.4))
                .reduce((sum, it, at) => sum + it * [.2126, .7152, .0722][at], 0);
            const behind = (it) => {
                for (; it; it = it.parentElement) {
                    const colour = parts(getComputedStyle(it).backgroundColor);
                    if (colour.length < 4 || colour[3] > 0) return colour;
                }
                return [255, 255, 255];
            };
            const own = (it) => [...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
            return [...document.querySelectorAll("body *")].filter((it) => it.checkVisibility() && own(it)).map((it) => {
                const [a, b] = [light(parts(getComputedStyle(it).color)), light(behind(it))].sort((x, y) => y - x);
                return [(a + .05) / (b + .05), it.outerHTML.slice(0, 120)];
            }).filter(([ratio]) => ratio < 4.5)
            """
        )
        self.assertEqual(weak, [])


class Demo(Page):
    # Behind the others: by then it has run for a while.
    expected = ("status of 401",)

    def test_the_demonstration_shows_likes_slices_and_a_clean_check(self):
        browser = self.browser
        browser.open(os.environ["DEMO_URL"])
        # No token is set, so none is asked for.
        self.shows("#verdict", "All is well.")
        self.assertFalse(browser.visible("#login"))
        boxes = "return document.querySelectorAll('#slices .{}').length"
        browser.until("slices have landed", lambda: browser.run(boxes.format("flushed")) >= 3)
        browser.until("one is open", lambda: browser.run(boxes.format("open")) >= 1)
        browser.until("likes come in", lambda: float(browser.text("#rate")) > 10)
        browser.until("ten rise", lambda: browser.run("return document.querySelectorAll('#rising li').length") == 10)
        with open(os.environ["DEMO_LOG"], encoding="utf-8") as log:
            browser.until("a clean check", lambda: (log.seek(0), ": 0 differences in" in log.read())[1])
        browser.click("#verify")
        self.shows("#verify-result", "0 differences in")
        self.picture("ui.png")
        browser.emulate(360, 800, dark=True)
        browser.until("narrow charts", lambda: browser.run("return document.querySelector('canvas').width <= 360"))
        wide = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        self.assertLessEqual(wide[0], wide[1], "nothing sticks out")
        self.picture("ui-phone-dark.png", whole=True)


class Docs(Page):
    def test_a_call_is_made_with_its_form(self):
        browser = self.browser
        browser.open(URL + "/docs")
        browser.until("the calls", lambda: browser.visible("#like summary"))
        browser.type("#key", SERVICE_KEY)
        browser.click("#like summary")
        # Kind, id and X-User-Id, in the order of the description.
        for at, text in enumerate(["blog", "tried", "u-docs"], start=1):
            browser.type(f"#like label:nth-of-type({at}) input", text)
        browser.click("#like button")
        self.shows("#like pre", "200 OK", '"liked": true', '"count": 1')
        seen = call("GET", "/v1/likes/blog/tried", SERVICE_KEY, user="u-docs")
        self.assertEqual((seen["liked"], seen["count"]), (True, 1))


if __name__ == "__main__":
    unittest.main(verbosity=2)

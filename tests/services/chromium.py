"""A real browser without a window: Debian's Chromium, driven by Selenium."""

from __future__ import annotations

import shutil
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

__all__ = ["BrowserMissingError", "open_browser"]

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class BrowserMissingError(Exception):
    """There is no browser to run; the message says what to install."""


def open_browser(
    folder: Path, *, width: int = 1280, height: int = 900, dark: bool = False
) -> Chrome:
    """Open one with an empty profile; end it with `quit`.

    Raises:
        BrowserMissingError: Chromium or its driver is not installed.
    """
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        raise BrowserMissingError("chromium and chromium-driver are not installed")
    options = ChromeOptions()
    options.binary_location = browser
    for argument in (
        "--headless=new",
        # As root, and where /dev/shm is small.
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        f"--window-size={width},{height}",
        f"--user-data-dir={folder}",
        *(("--force-dark-mode",) if dark else ()),
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = Chrome(options=options, service=Service(driver))
    opened.set_page_load_timeout(60)
    return opened

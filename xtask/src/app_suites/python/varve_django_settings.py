"""Settings for Django's test suite: two databases in one server, reached by its socket."""

import os


def _database(name):
    return {
        "ENGINE": "django.db.backends.mysql",
        "HOST": os.environ["VARVE_APP_SOCKET"],
        "USER": "root",
        "NAME": name,
        "OPTIONS": {"charset": "utf8mb4"},
        "TEST": {"CHARSET": "utf8mb4", "COLLATION": "utf8mb4_general_ci"},
    }


DATABASES = {"default": _database("django"), "other": _database("django_other")}
TEST_RUNNER = "varve_django_runner.Runner"
SECRET_KEY = "django_tests_secret_key"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False

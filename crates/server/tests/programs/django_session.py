"""django-redis: cache, sessions, delete_pattern, ttl. Arguments: the port."""
import sys

import django
from django.conf import settings

settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://127.0.0.1:%s/0" % sys.argv[1],
            "OPTIONS": {"CLIENT_CLASS": "django_redis.client.DefaultClient"},
        }
    },
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    SECRET_KEY="k",
)
django.setup()
from importlib import import_module

from django.core.cache import cache

assert cache.set("a", {"x": [1, 2]}, timeout=100) and cache.get("a") == {"x": [1, 2]}
assert cache.get("none", 7) == 7 and 90 < cache.ttl("a") <= 100
assert cache.add("a", 1) is False and cache.add("b", 1) is True
cache.set_many({"m1": 1, "m2": "zwei"})
assert cache.get_many(["m1", "m2", "m3"]) == {"m1": 1, "m2": "zwei"}
assert cache.has_key("m1") and cache.delete("m1") and not cache.has_key("m1")
assert cache.persist("a") and cache.ttl("a") is None and cache.expire("a", 50) and cache.ttl("a") <= 50
assert cache.touch("a", 200) and cache.ttl("a") > 50
cache.set("forever", 1, timeout=None)
assert cache.ttl("forever") is None
assert cache.get_or_set("made", lambda: 5) == 5
cache.set_many({"page:%d" % number: number for number in range(50)})
assert len(list(cache.iter_keys("page:*"))) == 50 and len(cache.keys("page:1*")) == 11
assert cache.delete_pattern("page:*") == 50 and cache.keys("page:*") == []
engine = import_module(settings.SESSION_ENGINE)
session = engine.SessionStore()
session["user"] = 7
session.save()
again = engine.SessionStore(session_key=session.session_key)
assert again["user"] == 7 and again.get_expiry_age() > 0
again.flush()
assert engine.SessionStore(session_key=session.session_key).get("user") is None
cache.set("count", 1, timeout=None)
assert cache.incr("count") == 2 and cache.incr("count", 5) == 7 and cache.decr("count", 2) == 5
print("ok")

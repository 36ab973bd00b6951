"""Counts the primes up to a limit with the sieve of Eratosthenes."""

#: Largest limit that is accepted; the sieve needs one byte for each number up to it.
LARGEST_LIMIT = 20_000_000


def main(event, context):
    """`{"limit": 100000}` gives how many primes there are up to it, and the last few of them."""
    limit = event.get("limit") if isinstance(event, dict) else None
    if not isinstance(limit, int) or isinstance(limit, bool) or not 0 <= limit <= LARGEST_LIMIT:
        # A dict with a statusCode is an answer of its own, as AWS Lambda has it.
        return {"statusCode": 400, "body": {"error": f"limit: a whole number from 0 to {LARGEST_LIMIT}"}}
    sieve = sieve_of(limit)
    return {"limit": limit, "count": sum(sieve), "last": last_primes(sieve, 5)}


def sieve_of(limit):
    """One byte for each number up to `limit`: 1 for a prime."""
    sieve = bytearray([1]) * (limit + 1)
    sieve[:2] = bytes(min(2, limit + 1))
    number = 2
    while number * number <= limit:
        if sieve[number]:
            sieve[number * number :: number] = bytes((limit - number * number) // number + 1)
        number += 1
    return sieve


def last_primes(sieve, count):
    """The largest primes, in order."""
    found = []
    place = len(sieve)
    while len(found) < count and (place := sieve.rfind(1, 0, place)) >= 0:
        found.append(place)
    return found[::-1]

"""From an uploaded folder to a revision that serves: manifest, bundle, environment, proof, traffic."""

"""Act 4: what people and monitoring see of a run: page, alerts, metrics, age check."""

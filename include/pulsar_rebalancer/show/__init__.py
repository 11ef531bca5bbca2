"""Act 4, show: page, alerts, metrics and age check."""

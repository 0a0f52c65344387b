"""The doors to metrics: live stores, scraped pages, bundles, memory. One protocol, one evaluation."""

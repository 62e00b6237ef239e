"""What a server of one model answers, and when: open-loop arrivals over loopback."""

"""Replay recorded load in a closed loop: what would other strategies and settings have done?"""

"""Tools that measure, draw and try this project; README.md tells them one by one."""

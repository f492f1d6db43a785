"""Colours of plots and charts: Okabe and Ito's, which colour-blind readers can distinguish."""

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#777777"

"""Colours of plots and charts: Okabe and Ito's, told apart by colour-blind readers too."""

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#777777"

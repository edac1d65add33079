# Sources of penstock(1), one a line, headers too.
penstock_SOURCES += \
	%D%/main.c

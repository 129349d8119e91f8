// libtamaki.so is made of the objects of tamaki_core.

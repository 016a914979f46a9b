// Package example is the code of the README, run as its reader would run it.
package example

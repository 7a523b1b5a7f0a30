// Package testutil holds what tests of several packages need: namespaces, devices, packets, databases of countries.
package testutil

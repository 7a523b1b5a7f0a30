// This file finds out which options of TCP the servers behind this host announce, for who answers their clients in
// their place. It knows no policy.

package facts

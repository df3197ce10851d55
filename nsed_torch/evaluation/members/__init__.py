"""Who makes a team good or spoils it, by voting again on one recorded round: no model is asked anything."""

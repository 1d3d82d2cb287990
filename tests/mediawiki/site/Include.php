<?php
// Runs a file within MediaWiki, as a request or a script would.

require_once '/usr/share/mediawiki/maintenance/Maintenance.php';

class IncludeFile extends Maintenance {
	public function execute() {
		require getenv( 'FILE' );
	}
}

$maintClass = IncludeFile::class;
require_once RUN_MAINTENANCE_IF_MAIN;

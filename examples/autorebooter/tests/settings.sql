CREATE TABLE settings (key text PRIMARY KEY, version text, changed timestamptz DEFAULT now());
INSERT INTO settings VALUES ('price-list', '41');
CREATE FUNCTION autoreboot_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_notify('autoreboot', TG_TABLE_NAME); RETURN NULL; END $$;
CREATE TRIGGER autoreboot AFTER INSERT OR UPDATE OF version OR DELETE ON settings
FOR EACH STATEMENT EXECUTE FUNCTION autoreboot_notify();

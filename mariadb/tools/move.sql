-- move.sql: prints the statements that move schemas from one engine to another, with their foreign keys.
--
--   mariadb -N -r --init-command="SET @schemas='shop,blog', @from='InnoDB', @to='VARVE'" < move.sql > list.sql
--   mariadb < list.sql
--
-- A table with a foreign key can't change its engine, and a foreign key ties tables of one engine. So all
-- foreign keys go first, then the tables change, then the foreign keys come back, which checks every row. The
-- list is made once, from what is there before: keep it. If it is interrupted, or a statement fails, run the
-- same list again from its beginning; until it has come to its end foreign keys are missing.
--
-- Tables that can't move, and those that are tied to them, stay: the list begins with their names and reasons.
SET SESSION group_concat_max_len = 1048576;

WITH RECURSIVE
  moving AS (
    SELECT table_schema AS s, table_name AS t, create_options AS options
      FROM information_schema.tables
      WHERE engine = @from AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND FIND_IN_SET(table_schema, @schemas)
  ),
  tie AS (
    SELECT constraint_schema AS child_schema, table_name AS child, unique_constraint_schema AS parent_schema,
        referenced_table_name AS parent, constraint_name AS name, delete_rule, update_rule
      FROM information_schema.referential_constraints
  ),
  stays (s, t, why) AS (
    SELECT s, t, CAST(CONCAT('has a ', index_type, ' index') AS CHAR(200))
      FROM information_schema.statistics JOIN moving ON table_schema = s AND table_name = t
      WHERE @to = 'VARVE' AND index_type IN ('FULLTEXT', 'SPATIAL')
    UNION
    SELECT s, t, 'is encrypted' FROM moving WHERE @to = 'VARVE' AND options REGEXP 'encrypted[^,]*yes'
    UNION
    SELECT child_schema, child, CONCAT('has a parent that does not move: ', parent_schema, '.', parent)
      FROM tie WHERE (child_schema, child) IN (SELECT s, t FROM moving)
        AND (parent_schema, parent) NOT IN (SELECT s, t FROM moving)
    UNION
    SELECT parent_schema, parent, CONCAT('has a child that does not move: ', child_schema, '.', child)
      FROM tie WHERE (parent_schema, parent) IN (SELECT s, t FROM moving)
        AND (child_schema, child) NOT IN (SELECT s, t FROM moving)
    UNION
    SELECT IF((child_schema, child) = (s, t), parent_schema, child_schema), IF((child_schema, child) = (s, t), parent, child),
        'is tied to a table that stays'
      FROM stays JOIN tie ON (child_schema, child) = (s, t) OR (parent_schema, parent) = (s, t)
  ),
  goes AS (SELECT s, t FROM moving WHERE (s, t) NOT IN (SELECT s, t FROM stays)),
  ends AS (
    SELECT constraint_schema, table_name, constraint_name,
        GROUP_CONCAT('`', REPLACE(column_name, '`', '``'), '`' ORDER BY ordinal_position SEPARATOR ', ') AS own,
        GROUP_CONCAT('`', REPLACE(referenced_column_name, '`', '``'), '`' ORDER BY ordinal_position SEPARATOR ', ') AS its
      FROM information_schema.key_column_usage WHERE referenced_table_name IS NOT NULL
      GROUP BY constraint_schema, table_name, constraint_name
  ),
  list (step, statement) AS (
    SELECT 1, CONCAT('-- stays: ', s, '.', t, ' ', MIN(why)) FROM stays WHERE (s, t) IN (SELECT s, t FROM moving) GROUP BY s, t
    UNION ALL
    SELECT 2, CONCAT('ALTER TABLE `', REPLACE(s, '`', '``'), '`.`', REPLACE(t, '`', '``'), '` DROP FOREIGN KEY IF EXISTS `',
        REPLACE(name, '`', '``'), '`;')
      FROM goes JOIN tie ON (child_schema, child) = (s, t)
    UNION ALL
    SELECT 3, CONCAT('ALTER TABLE `', REPLACE(s, '`', '``'), '`.`', REPLACE(t, '`', '``'), '` ENGINE=', @to, ';') FROM goes
    UNION ALL
    SELECT 4, CONCAT('ALTER TABLE `', REPLACE(s, '`', '``'), '`.`', REPLACE(t, '`', '``'), '` ADD CONSTRAINT `', REPLACE(name, '`', '``'),
        '` FOREIGN KEY (', own, ') REFERENCES `', REPLACE(parent_schema, '`', '``'),
        '`.`', REPLACE(parent, '`', '``'), '` (', its, ') ON DELETE ', delete_rule, ' ON UPDATE ', update_rule, ';')
      FROM goes JOIN tie ON (child_schema, child) = (s, t)
        JOIN ends ON (constraint_schema, table_name, constraint_name) = (s, t, name)
  )
SELECT statement FROM list ORDER BY step, statement;
